# tandem_openblas: the headers of the serial library if it is installed, else of the library that
# pkg-config names. (A rank uses one core, and the threaded library starts its threads when it is
# loaded.) The kernels load the library itself when they need it. TANDEM_OPENBLAS is its path.
add_library(tandem_openblas INTERFACE)
find_library(OPENBLAS_SERIAL NAMES openblas NO_DEFAULT_PATH
  PATHS /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/openblas-serial)
find_path(OPENBLAS_SERIAL_INCLUDE NAMES cblas.h NO_DEFAULT_PATH
  PATHS /usr/include/${CMAKE_LIBRARY_ARCHITECTURE}/openblas-serial)
if(OPENBLAS_SERIAL AND OPENBLAS_SERIAL_INCLUDE)
  set(TANDEM_OPENBLAS ${OPENBLAS_SERIAL})
  target_include_directories(tandem_openblas SYSTEM INTERFACE ${OPENBLAS_SERIAL_INCLUDE})
else()
  pkg_check_modules(OPENBLAS REQUIRED openblas)
  find_library(OPENBLAS_SHARED NAMES openblas REQUIRED HINTS ${OPENBLAS_LIBRARY_DIRS})
  set(TANDEM_OPENBLAS ${OPENBLAS_SHARED})
  target_include_directories(tandem_openblas SYSTEM INTERFACE ${OPENBLAS_INCLUDE_DIRS})
endif()
# A machine without development packages has the library only under the name with its version.
if(EXISTS ${TANDEM_OPENBLAS}.0)
  string(APPEND TANDEM_OPENBLAS .0)
endif()
target_link_libraries(tandem_openblas INTERFACE ${CMAKE_DL_LIBS})
