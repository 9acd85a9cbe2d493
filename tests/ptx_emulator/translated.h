// What translated kernels include, compiled once for all of them by build.py.
#pragma once

#include "arithmetic.h"
#include "thread.h"
