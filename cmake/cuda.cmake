# The CUDA module, linalg/_cuda. LINALG_CUDA=AUTO builds it if nvcc and a GPU's driver are found. ON
# requires it, and OFF leaves it out. AUTO needs the driver too, because a machine may have nvcc but
# no GPU, and this module takes longest to compile.
#
# The build needs no cuSOLVER, cuBLAS or their headers, because the module opens the libraries at
# first use. It does not call find_package(CUDAToolkit), which requires more than nvcc and the
# static runtime. The wheels on PyPI do not have all of that.
set(LINALG_CUDA "AUTO" CACHE STRING "AUTO, ON or OFF")
set_property(CACHE LINALG_CUDA PROPERTY STRINGS AUTO ON OFF)

if(LINALG_CUDA STREQUAL "OFF")
  message(STATUS "CUDA: left out, LINALG_CUDA=OFF")
  return()
endif()
if(LINALG_CUDA STREQUAL "AUTO")
  find_library(LINALG_CUDA_DRIVER NAMES libcuda.so.1 cuda)
  if(NOT LINALG_CUDA_DRIVER AND NOT EXISTS "/proc/driver/nvidia/version")
    message(STATUS "CUDA: left out, there is no driver of a GPU; LINALG_CUDA=ON builds it all the same")
    return()
  endif()
endif()

include(CheckLanguage)
# Without nvcc on the PATH, use the one in the build environment's wheel nvidia-cuda-nvcc. The
# wheel's libraries are in lib, but its nvcc searches lib64.
if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  find_program(LINALG_NVCC nvcc HINTS ENV CUDA_HOME PATH_SUFFIXES bin)
  if(NOT LINALG_NVCC)
    execute_process(
      COMMAND "${Python_EXECUTABLE}" -c
              "import importlib.util as u; s = u.find_spec('nvidia'); print(';'.join(s.submodule_search_locations) if s else '', end='')"
      OUTPUT_VARIABLE nvidia_dirs)
    find_program(LINALG_WHEEL_NVCC nvcc PATHS ${nvidia_dirs} PATH_SUFFIXES cu13/bin NO_DEFAULT_PATH)
    if(LINALG_WHEEL_NVCC)
      set(CMAKE_CUDA_COMPILER "${LINALG_WHEEL_NVCC}")
      get_filename_component(nvcc_root "${LINALG_WHEEL_NVCC}" DIRECTORY)
      get_filename_component(nvcc_root "${nvcc_root}" DIRECTORY)
      set(ENV{NVCC_APPEND_FLAGS} "-L${nvcc_root}/lib")
      set(CMAKE_CUDA_FLAGS "${CMAKE_CUDA_FLAGS} -L${nvcc_root}/lib")
    endif()
  else()
    set(CMAKE_CUDA_COMPILER "${LINALG_NVCC}")
  endif()
endif()
# The handlers call the libraries of the toolkit's major version, which come with jax's plugin of that
# version. nvcc 12.1 is the first that compiles the kernels' C++20.
set(nvcc "${CMAKE_CUDA_COMPILER}")
if(NOT nvcc)
  set(nvcc "$ENV{CUDACXX}")
endif()
set(nvcc_version "")
if(nvcc)
  execute_process(COMMAND "${nvcc}" --version OUTPUT_VARIABLE nvcc_version ERROR_QUIET)
  string(REGEX MATCH "release ([0-9.]+)" nvcc_version "${nvcc_version}")
  set(nvcc_version "${CMAKE_MATCH_1}")
  if(nvcc_version VERSION_LESS 12.1)
    set(reason "${nvcc} is not an nvcc of CUDA 12.1 or later")
    if(LINALG_CUDA STREQUAL "ON")
      message(FATAL_ERROR "LINALG_CUDA=ON, but ${reason}")
    endif()
    message(STATUS "CUDA: left out, ${reason} (LINALG_CUDA=AUTO)")
    return()
  endif()
endif()
# Machine code for the H100 and H200, and PTX that drivers compile for all other GPUs from the A100
# on.
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES "80-virtual;90-real")
endif()
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  if(LINALG_CUDA STREQUAL "ON")
    message(FATAL_ERROR "LINALG_CUDA=ON, but there is no nvcc: put one on the PATH, or set CUDACXX")
  endif()
  message(STATUS "CUDA: left out, there is no nvcc (LINALG_CUDA=AUTO)")
  return()
endif()
enable_language(CUDA)
message(STATUS "CUDA: nvcc ${CMAKE_CUDA_COMPILER_VERSION}, architectures ${CMAKE_CUDA_ARCHITECTURES}")

# CMake 3.25 does not know that nvcc supports C++20.
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()
set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
find_sources(kernel_sources "kernels/cuda/*.cu" kernels/cuda/solve.cu)
find_sources(module_sources "kernels/cuda/*.cc")
add_library(linalg_cuda_kernels STATIC ${kernel_sources})
nanobind_add_module(_cuda NB_STATIC STABLE_ABI NOMINSIZE ${module_sources})
foreach(target linalg_cuda_kernels _cuda)
  target_include_directories(${target} PRIVATE "${CMAKE_SOURCE_DIR}")
  target_include_directories(
    ${target} SYSTEM PRIVATE "${LINALG_XLA_INCLUDE_DIR}" ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES})
endforeach()
set_target_properties(linalg_cuda_kernels PROPERTIES POSITION_INDEPENDENT_CODE ON CUDA_STANDARD 20)
# Products and sums are fused only where the code says so, as on the CPU. Warning 1675 is for GCC's
# pragmas, which nvcc does not support.
target_compile_options(
  linalg_cuda_kernels
  PRIVATE --expt-relaxed-constexpr -fmad=false -diag-suppress 1675 -Xfatbin=-compress-all
          -Xcompiler=-Wno-unknown-pragmas,-Wno-psabi)
# tests/ptx_emulator/build.py reads the PTX.
option(LINALG_KEEP_PTX "Keep the kernels' PTX in the build folder" OFF)
if(LINALG_KEEP_PTX)
  file(MAKE_DIRECTORY "${CMAKE_BINARY_DIR}/ptx")
  target_compile_options(linalg_cuda_kernels PRIVATE --keep "--keep-dir=${CMAKE_BINARY_DIR}/ptx")
endif()
target_compile_options(_cuda PRIVATE -Wall -Wextra)
target_link_libraries(_cuda PRIVATE linalg_cuda_kernels ${CMAKE_DL_LIBS})
export_initialisation_alone(_cuda)
# dlopen also searches these directories of NVIDIA's wheels, beside this package or beside its
# source tree. The wheels of CUDA 12 have one for each library.
if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 13)
  set(library_folders cublas/lib cusolver/lib)
else()
  set(library_folders cu13/lib)
endif()
set(rpath "")
foreach(folder IN LISTS library_folders)
  list(APPEND rpath "$ORIGIN/../nvidia/${folder}" "$ORIGIN/../../nvidia/${folder}")
endforeach()
set_target_properties(_cuda PROPERTIES BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "${rpath}")
install(TARGETS _cuda LIBRARY DESTINATION ${cuda_package})
