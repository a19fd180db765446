# The build tree of `make mutants`. All layers are in one shared library. Every program loads the library
# of one mutant before it, so a mutant costs one compilation and no link of a program. The tree's own
# library tandem_mutant is empty.
add_library(tandem_mutant SHARED ${CMAKE_CURRENT_LIST_DIR}/guard.c)
add_library(tandem_all SHARED)
foreach(layer base ir verify kernels front passes lower store sim exec session cli)
  tandem_add_objects(tandem_all ${layer})
endforeach()
target_include_directories(tandem_all PUBLIC ${CMAKE_SOURCE_DIR})
target_link_libraries(tandem_all PUBLIC PkgConfig::SQLITE PkgConfig::ZLIB PkgConfig::LUA PkgConfig::JANSSON
  tandem_openblas Threads::Threads ${CMAKE_DL_LIBS} m)
# The mutant's library must come first, also in a program that needs none of its symbols. LD_LIBRARY_PATH
# chooses it: the loader searches it before a run path of the new kind (--enable-new-dtags).
set(TANDEM_LAYERS -Wl,--no-as-needed,--enable-new-dtags tandem_mutant tandem_all)
