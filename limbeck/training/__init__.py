"""Training: lists, negatives, batches, stages, the trainer, and what a teacher leaves on disk."""
