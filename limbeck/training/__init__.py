"""Training: lists, negatives, batches, stages, the trainer, and stored outputs of a teacher."""
