// The headers of translated kernels, which build.py precompiles once.
#pragma once

#include "arithmetic.h"
#include "thread.h"
