"""What all labs share: tasks and criteria, the examination, races, and isolation."""
