"""The course's backends: a module for each, or a package whose module ``backend`` holds the class; see `course_lib.engines.backend`."""
