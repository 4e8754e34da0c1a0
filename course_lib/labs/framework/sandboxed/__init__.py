"""What runs in the process of a learner's file, in labs of any number: the course sends it there as text, too."""
