# The modules that the command loads at run time: one module for each MPI, one for CUDA. They are
# beside the command in the build tree, and in lib/tandem after installation. They use the layers'
# code in the command that loads them.
function(tandem_module name)
  add_library(${name} MODULE ${ARGN})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR})
  set_target_properties(${name} PROPERTIES PREFIX "" LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
  add_dependencies(tandem ${name})
  install(TARGETS ${name} LIBRARY DESTINATION lib/tandem)
endfunction()

function(tandem_mpi_modules)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/exec/mpi/*.c)
  if(NOT TANDEM_MPI OR NOT sources)
    return()
  endif()
  foreach(flavour openmpi mpich)
    string(TOUPPER ${flavour} upper)
    if(flavour STREQUAL "openmpi")
      pkg_search_module(MPI_${upper} IMPORTED_TARGET ompi-c ompi)
    else()
      pkg_search_module(MPI_${upper} IMPORTED_TARGET mpich)
    endif()
    if(NOT MPI_${upper}_FOUND)
      message(STATUS "${flavour}: not found, no module for it")
      continue()
    endif()
    tandem_module(tandem_mpi_${flavour} ${sources})
    target_compile_definitions(tandem_mpi_${flavour} PRIVATE TANDEM_MPI_FLAVOUR="${flavour}")
    # MPI's headers are system headers, so that its macros need not pass our warnings.
    target_include_directories(tandem_mpi_${flavour} SYSTEM PRIVATE
      ${MPI_${upper}_INCLUDE_DIRS})
    target_link_directories(tandem_mpi_${flavour} PRIVATE ${MPI_${upper}_LIBRARY_DIRS})
    if(flavour STREQUAL "openmpi")
      target_link_libraries(tandem_mpi_${flavour} PRIVATE mpi)
    else()
      target_link_libraries(tandem_mpi_${flavour} PRIVATE mpich)
    endif()
  endforeach()
endfunction()

# -DTANDEM_CUDA_ARCHITECTURES=90a-real compiles for one GPU, in a third of the time. The test of the
# kernels' registers needs all architectures.
set(TANDEM_CUDA_ARCHITECTURES "80-real;90a-real;100" CACHE STRING "architectures of the kernels")

# Machine code for Ampere, Hopper (with its special instructions) and Blackwell, and PTX for later
# architectures. a * b + c is never contracted, as in C, so that the same sum has the same value
# everywhere. If a kernel bound by memory, or Hopper's attention, spills registers, that is an error. For
# other kernels with tiles it is a warning. The messages of ptxas for each kernel are kept beside the
# object.
function(tandem_cuda_kernels)
  add_library(tandem_cuda_kernels OBJECT ${ARGN})
  target_include_directories(tandem_cuda_kernels PRIVATE ${CMAKE_SOURCE_DIR})
  target_compile_options(tandem_cuda_kernels PRIVATE -fmad=false -Xptxas=-warn-spills,-v)
  set(at_memory_speed ${ARGN})
  list(FILTER at_memory_speed EXCLUDE REGEX "/(attention|product)[a-z_]*\\.cu$")
  set(hopper ${ARGN})
  list(FILTER hopper INCLUDE REGEX "/attention_hopper[a-z_]*\\.cu$")
  set_source_files_properties(${at_memory_speed} ${hopper} PROPERTIES
    COMPILE_OPTIONS -Xptxas=-Werror)
  set(launcher sh ${CMAKE_SOURCE_DIR}/cmake/ptxas_log.sh ${CMAKE_CUDA_COMPILER_LAUNCHER})
  set_target_properties(tandem_cuda_kernels PROPERTIES CUDA_STANDARD 17
    POSITION_INDEPENDENT_CODE ON CUDA_ARCHITECTURES "${TANDEM_CUDA_ARCHITECTURES}"
    CUDA_COMPILER_LAUNCHER "${launcher}")
endfunction()

# This is a macro because a language must be enabled in the scope of the whole project. The kernels
# are compiled if nvcc exists; the module also needs NCCL. The sanitizer builds use the kernels as C
# instead.
macro(tandem_cuda_module)
  file(GLOB_RECURSE cuda_c_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/exec/cuda/*.c)
  file(GLOB cuda_kernel_c_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/kernels/cuda/*.c
    ${CMAKE_SOURCE_DIR}/kernels/cuda/product/*.c
    ${CMAKE_SOURCE_DIR}/kernels/cuda/cublas/*.c ${CMAKE_SOURCE_DIR}/kernels/cuda/cudnn/*.c
    ${CMAKE_SOURCE_DIR}/kernels/cuda/choose/*.c)
  file(GLOB_RECURSE cuda_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/kernels/cuda/*.cu)
  if(TANDEM_CUDA AND cuda_sources AND NOT TANDEM_SANITIZE AND NOT "$ENV{TANDEM_NO_CUDA}")
    include(CheckLanguage)
    if(NOT CMAKE_CUDA_ARCHITECTURES)
      set(CMAKE_CUDA_ARCHITECTURES 80)
    endif()
    check_language(CUDA)
    if(CMAKE_CUDA_COMPILER)
      enable_language(CUDA)
      set(CMAKE_CUDA_FLAGS_RELEASE "-O3")
      tandem_cuda_kernels(${cuda_sources})
      list(APPEND CMAKE_MODULE_PATH ${CMAKE_SOURCE_DIR}/cmake)
      find_package(CUDAToolkit QUIET)
      find_package(NCCL QUIET)
    else()
      message(STATUS "nvcc not found: no CUDA kernels")
    endif()
    if(cuda_c_sources AND CMAKE_CUDA_COMPILER AND CUDAToolkit_FOUND AND NCCL_FOUND)
      # Programs that need a GPU use these objects too: see tests/CMakeLists.txt.
      add_library(tandem_cuda_objects OBJECT ${cuda_c_sources} ${cuda_kernel_c_sources})
      target_include_directories(tandem_cuda_objects PRIVATE ${CMAKE_SOURCE_DIR})
      target_link_libraries(tandem_cuda_objects PRIVATE CUDA::cudart CUDA::cublasLt NCCL::nccl)
      tandem_module(tandem_cuda $<TARGET_OBJECTS:tandem_cuda_objects>
        $<TARGET_OBJECTS:tandem_cuda_kernels>)
      target_link_libraries(tandem_cuda PRIVATE CUDA::cudart CUDA::cublasLt NCCL::nccl)
      # CMake leaves out folders that nvcc searches by itself. The loader does not search them.
      get_target_property(cublas CUDA::cublasLt IMPORTED_LOCATION)
      get_filename_component(cublas_folder ${cublas} DIRECTORY)
      get_filename_component(nccl_folder ${NCCL_LIBRARY} DIRECTORY)
      set(TANDEM_CUDA_FOLDERS ${CUDAToolkit_LIBRARY_DIR} ${cublas_folder} ${nccl_folder})
      list(REMOVE_DUPLICATES TANDEM_CUDA_FOLDERS)
      list(JOIN TANDEM_CUDA_FOLDERS ":" cuda_run_path)
      target_link_options(tandem_cuda PRIVATE "LINKER:--enable-new-dtags,-rpath,${cuda_run_path}")
    elseif(cuda_c_sources)
      message(STATUS "CUDA toolkit or NCCL not found, no module for them")
    endif()
  endif()
endmacro()
