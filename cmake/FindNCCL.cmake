# Defines NCCL::nccl, because CMake's CUDA package does not know NCCL. Also finds the NCCL that pip
# installs among Python's packages, for example with PyTorch. That NCCL has only the file
# libnccl.so.2, but not libnccl.so, for which a linker looks.
find_program(NCCL_PYTHON python3)
mark_as_advanced(NCCL_PYTHON)
if(NCCL_PYTHON)
  execute_process(COMMAND ${NCCL_PYTHON} -c "import sysconfig; print(sysconfig.get_paths()['purelib'])"
    OUTPUT_VARIABLE NCCL_PIP OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
set(NCCL_HINTS ${CUDAToolkit_LIBRARY_DIR} ${CUDAToolkit_LIBRARY_ROOT}
  ${CUDAToolkit_LIBRARY_ROOT}/../nccl)
set(NCCL_PATHS ${NCCL_PIP}/nvidia/nccl)
find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS} ${NCCL_HINTS}
  PATHS ${NCCL_PATHS} PATH_SUFFIXES include)
find_library(NCCL_LIBRARY NAMES nccl libnccl.so.2 HINTS ${NCCL_HINTS} PATHS ${NCCL_PATHS}
  PATH_SUFFIXES lib lib64)
if(NCCL_INCLUDE_DIR)
  file(STRINGS ${NCCL_INCLUDE_DIR}/nccl.h NCCL_LINE REGEX "#define NCCL_(MAJOR|MINOR|PATCH) ")
  string(REGEX REPLACE "[^0-9]*([0-9]+)[^0-9]+([0-9]+)[^0-9]+([0-9]+).*" "\\1.\\2.\\3" NCCL_VERSION
    "${NCCL_LINE}")
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(NCCL REQUIRED_VARS NCCL_LIBRARY NCCL_INCLUDE_DIR
  VERSION_VAR NCCL_VERSION)
if(NCCL_FOUND AND NOT TARGET NCCL::nccl)
  add_library(NCCL::nccl UNKNOWN IMPORTED)
  set_target_properties(NCCL::nccl PROPERTIES IMPORTED_LOCATION ${NCCL_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${NCCL_INCLUDE_DIR})
endif()
