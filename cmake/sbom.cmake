# A bill of materials in the wheel (PEP 770) lists the third-party code that is compiled into the
# modules. Its versions are those that this build found. The licences are in `licenses/`.
if(NOT DEFINED SKBUILD_METADATA_DIR)
  return()  # no wheel is built
endif()

file(STRINGS "${NB_DIR}/ext/robin_map/include/tsl/robin_growth_policy.h" lines REGEX "define TSL_RH_VERSION_")
string(REGEX MATCHALL "[0-9]+" robin_map_VERSION "${lines}")
list(JOIN robin_map_VERSION "." robin_map_VERSION)
set(robin_map_TAG "v${robin_map_VERSION}")
execute_process(
  COMMAND "${Python_EXECUTABLE}" -c "import importlib.metadata as m; print(m.version('jaxlib'))"
  OUTPUT_VARIABLE jaxlib_VERSION OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)

string(REPLACE "_" "-" distribution "${SKBUILD_PROJECT_NAME}")
set(cuda_component "")
set(cuda_dependency "")
if(TARGET _cuda)
  string(CONCAT cuda_component ",
    {
      \"type\": \"library\",
      \"bom-ref\": \"cudart\",
      \"name\": \"CUDA runtime\",
      \"version\": \"${CMAKE_CUDA_COMPILER_VERSION}\",
      \"description\": \"libcudart_static, with the code that nvcc ${CMAKE_CUDA_COMPILER_VERSION} adds\",
      \"licenses\": [{\"license\": {\"name\": \"NVIDIA CUDA Toolkit EULA\"}}]
    }")
  set(cuda_dependency ", \"cudart\"")
endif()

configure_file("${CMAKE_CURRENT_LIST_DIR}/sbom.cdx.json.in" "${distribution}.cdx.json" @ONLY)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/${distribution}.cdx.json" DESTINATION "${SKBUILD_METADATA_DIR}/sboms")
