# Cross build for 64-bit Arm on Debian: gcc-aarch64-linux-gnu, the arm64 libraries beside those of
# this machine, and qemu-user, which runs the programs. `cmake/deps.sh arm` installs them.
# The emulator gets no option -L: with the folder of the cross compiler, the loader of its C library
# would load that of libc6:arm64. The two differ, and a forked process never returns from fork().
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64)
# The files of pkg-config that describe this machine's libraries must not be found.
set(ENV{PKG_CONFIG_LIBDIR} /usr/lib/aarch64-linux-gnu/pkgconfig:/usr/share/pkgconfig)
