"""Programs of lab 15: one exports a learner's module, the other one runs the exported graph."""
