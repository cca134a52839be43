"""New texts out of given ones: seq2seq models, and ways that need no model."""
