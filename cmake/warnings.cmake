# The compiler options of all of Tandem. Assertions stay in every build. a * b + c is never
# contracted, because the same plan must compute the same bits in every build.
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Release or Debug" FORCE)
endif()
set(CMAKE_C_FLAGS_RELEASE "-O2 -g")
set(CMAKE_C_FLAGS_DEBUG "-O0 -g3")

add_compile_definitions(_POSIX_C_SOURCE=200809L)
add_compile_options(
  $<$<COMPILE_LANGUAGE:C>:-Wall> $<$<COMPILE_LANGUAGE:C>:-Wextra>
  $<$<COMPILE_LANGUAGE:C>:-Wpedantic> $<$<COMPILE_LANGUAGE:C>:-Wconversion>
  $<$<COMPILE_LANGUAGE:C>:-Wshadow> $<$<COMPILE_LANGUAGE:C>:-Wvla>
  $<$<COMPILE_LANGUAGE:C>:-Wswitch-enum> $<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes>
  $<$<COMPILE_LANGUAGE:C>:-Wmissing-prototypes> $<$<COMPILE_LANGUAGE:C>:-Wundef>
  $<$<COMPILE_LANGUAGE:C>:-Wformat=2>
  $<$<COMPILE_LANGUAGE:C>:-ffp-contract=off>
  # A checkout in another folder gives the same binary, except for the scripts folder.
  $<$<COMPILE_LANGUAGE:C>:-ffile-prefix-map=${CMAKE_SOURCE_DIR}/=>)

# Clang warns if it cannot vectorise a loop whose pragma requests this; that only affects speed.
if(CMAKE_C_COMPILER_ID MATCHES "Clang")
  add_compile_options($<$<COMPILE_LANGUAGE:C>:-Wno-pass-failed>)
endif()

# Warnings are errors in the presets. They are not in a user's build, because another compiler may
# give other warnings.
if(TANDEM_WERROR)
  add_compile_options($<$<COMPILE_LANGUAGE:C>:-Werror>)
endif()

if(TANDEM_SANITIZE)
  add_compile_options($<$<COMPILE_LANGUAGE:C>:-fsanitize=address,undefined>
    $<$<COMPILE_LANGUAGE:C>:-fno-sanitize-recover=all>)
  add_link_options(-Wl,--wrap=memmove)
  if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
    # A check of undefined behaviour that fails runs an illegal instruction. AddressSanitizer then
    # prints ILL, the line and the stack. With a message for each check, a program would be 9 MB larger
    # and a process would take 17 ms to start instead of 7, and the tests start thousands of processes.
    set(CMAKE_C_FLAGS_RELEASE
      "-O2 -g1 -fno-omit-frame-pointer -fsanitize-undefined-trap-on-error")
    add_link_options(-fsanitize=address)
  else()
    set(CMAKE_C_FLAGS_RELEASE "-O1 -g1 -fno-omit-frame-pointer")
    add_link_options(-fsanitize=address,undefined)
  endif()
  # The program has a fixed address, so the loader need not change its addresses at each start.
  add_link_options($<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:-no-pie>)
endif()

if(TANDEM_FUZZ)
  add_compile_options($<$<COMPILE_LANGUAGE:C>:-fsanitize=fuzzer-no-link>)
endif()
