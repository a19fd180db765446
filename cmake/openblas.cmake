# tandem_openblas: the serial library if it is installed, else the library that pkg-config names. (A
# rank uses one core, and the threaded library starts its threads when it is loaded.)
add_library(tandem_openblas INTERFACE)
find_library(OPENBLAS_SERIAL NAMES openblas NO_DEFAULT_PATH
  PATHS /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/openblas-serial)
find_path(OPENBLAS_SERIAL_INCLUDE NAMES cblas.h NO_DEFAULT_PATH
  PATHS /usr/include/${CMAKE_LIBRARY_ARCHITECTURE}/openblas-serial)
if(OPENBLAS_SERIAL AND OPENBLAS_SERIAL_INCLUDE)
  target_link_libraries(tandem_openblas INTERFACE ${OPENBLAS_SERIAL})
  target_include_directories(tandem_openblas SYSTEM INTERFACE ${OPENBLAS_SERIAL_INCLUDE})
else()
  pkg_check_modules(OPENBLAS REQUIRED IMPORTED_TARGET openblas)
  target_link_libraries(tandem_openblas INTERFACE PkgConfig::OPENBLAS)
endif()
