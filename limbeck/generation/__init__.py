"""New texts from given ones, with seq2seq models or without a model."""
