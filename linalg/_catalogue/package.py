"""Functions that concern the package rather than matrices."""

import linalg
from linalg._catalogue.record import Function, Kind

FAILURES = Kind("package", "Failures")
ACCELERATED = Kind("package", "JAX's own functions by these handlers")
CONFIGURATION = Kind("package", "Configuration and export")

PACKAGE: tuple[Function, ...] = (
    Function(
        "checked", FAILURES, classes=("LinAlgError",), arguments=(linalg.cholesky,),
        results={"checked(linalg.eigh)(a)": "linalg.EighResult"}),
    Function("accelerate", ACCELERATED, results={"accelerate(products=True)": "None"}),
    Function("accelerated", ACCELERATED, results={"accelerated().__enter__()": "None"}),
    Function("show_config", CONFIGURATION, results={"show_config()": "None"}),
    Function(
        "export_disabled_checks", CONFIGURATION,
        results={"export_disabled_checks()": "list[export.DisabledSafetyCheck]"}),
    Function("include_dir", CONFIGURATION, results={"include_dir()": "str"}),
)
