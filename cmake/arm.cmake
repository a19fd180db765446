# Cross build for 64-bit Arm on Debian. It needs gcc-aarch64-linux-gnu, the arm64 libraries, and
# qemu-user, which runs the programs. `cmake/deps.sh arm` installs them. The emulator gets no option
# -L with the folder of the cross compiler. With it, the loader of that folder would load the C library
# of libc6:arm64. The two do not fit together: a forked process would never return from fork().
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64)
# CMake must not find the pkg-config files of this machine's libraries.
set(ENV{PKG_CONFIG_LIBDIR} /usr/lib/aarch64-linux-gnu/pkgconfig:/usr/share/pkgconfig)
