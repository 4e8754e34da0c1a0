"""The course as a learner meets it: a real JupyterLab in a real browser. `make browser-test`."""
