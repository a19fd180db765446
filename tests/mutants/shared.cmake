# The build tree of `make mutants`. All layers lie in one shared library, and every program loads the
# library of one mutant before it: a mutant costs one compilation and no link of a program. The library
# tandem_mutant of the tree itself is empty.
add_library(tandem_mutant SHARED ${CMAKE_CURRENT_LIST_DIR}/guard.c)
add_library(tandem_all SHARED)
foreach(layer base ir verify kernels front passes lower store sim exec session cli)
  tandem_add_objects(tandem_all ${layer})
endforeach()
target_include_directories(tandem_all PUBLIC ${CMAKE_SOURCE_DIR})
target_link_libraries(tandem_all PUBLIC PkgConfig::SQLITE PkgConfig::ZLIB PkgConfig::LUA PkgConfig::JANSSON
  tandem_openblas Threads::Threads ${CMAKE_DL_LIBS} m)
# The mutant's symbols come first only where its library does, also if a program needs nothing of it.
# LD_LIBRARY_PATH chooses it: that comes before the run path, unless the run path is of the old kind.
set(TANDEM_LAYERS -Wl,--no-as-needed,--enable-new-dtags tandem_mutant tandem_all)
