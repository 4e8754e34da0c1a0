"""Sphinx's settings for the course's book; `make_book.py` brings the sources together and runs it."""

project = "The TensorRT course"
author = "The TensorRT course"
copyright = "the authors of the TensorRT course, Apache-2.0"

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
myst_enable_extensions = ["dollarmath", "html_image"]
myst_heading_anchors = 4
default_role = "code"  # docstrings write `names` like this

html_theme = "sphinx_book_theme"
html_title = project
html_theme_options = {"show_toc_level": 2, "use_download_button": True, "show_navbar_depth": 1, "navbar_persistent": []}
html_static_path = ["_static"]
html_css_files = ["course.css"]
html_last_updated_fmt = None

nb_execution_mode = "cache"  # set to "off" by `make_book.py --no-execute`
nb_execution_excludepatterns = ["labs/*/*"]  # a lab is for its reader to solve
nb_execution_timeout = 300
nb_execution_raise_on_error = True
nb_execution_show_tb = True
nb_merge_streams = True
# A widget needs a kernel, and a page has none: its static figure is shown.
nb_mime_priority_overrides = [("html", "image/png", 0), ("html", "application/vnd.jupyter.widget-view+json", None)]
napoleon_attr_annotations = False  # checks of pydantic are no text to read
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
