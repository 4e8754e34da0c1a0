"""Programs of lab 11: one exports a learner's module, the other one runs the exported graph."""
