"""The documentation site; CONTRIBUTING.md has the command. docs/*.md stay readable as they are:
what the site makes of them is in docs/_extensions."""

import os
import pathlib
import sys
import tomllib

ROOT = pathlib.Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "docs" / "_extensions"), str(ROOT / "benchmarks")]
os.environ.setdefault("JAX_PLATFORMS", "cpu")

project = "linalg"
author = "the linalg authors"
project_copyright = "the linalg authors, Apache 2.0"
release = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]

extensions = [
    "sphinx.ext.autodoc", "sphinx.ext.autosummary", "myst_parser", "sphinx_copybutton",
    "docstrings", "figures", "links", "speed", "tutorials"]

# Documents
exclude_patterns = ["_extensions", "_static", "figures"]
myst_enable_extensions = ["attrs_block", "colon_fence"]
myst_heading_anchors = 4
suppress_warnings = ["myst.strikethrough"]
language = "en"
smartquotes = False  # quotes are strings'

# Docstrings
autodoc_member_order = "bysource"
autosummary_generate = False
default_role = "known_name"
maximum_signature_line_length = 88
python_use_unqualified_type_names = True
toc_object_entries_show_parents = "hide"

# A reference that leads nowhere is an error. Exceptions are type variables and other projects'
# names, because their inventories are on the network, which a build must not need.
nitpicky = True
nitpick_ignore_regex = [
    (r"py:.*", r"(jax|numpy|collections|typing)\..*"),
    ("py:class", r"ArrayLike|P|.*\.R|.*\._cyclic\.Cyclic")]

# Pages
html_theme = "furo"
html_title = f"linalg {release}"
html_static_path = ["_static"]
html_css_files = ["style.css"]
html_copy_source = False
html_show_sphinx = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#1f5fa8", "color-brand-content": "#1f5fa8"},
    "dark_css_variables": {"color-brand-primary": "#7db4f0", "color-brand-content": "#7db4f0"},
}
pygments_style = "default"
pygments_dark_style = "github-dark"
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
