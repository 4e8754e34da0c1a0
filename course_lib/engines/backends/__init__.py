"""The course's backends. Each is a module, or a package whose module ``backend`` holds the class; see `course_lib.engines.backend`."""
