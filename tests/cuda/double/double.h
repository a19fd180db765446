/* A test double of the CUDA runtime and of NCCL: the calls that the backend makes, with exactly the
 * guarantees of CUDA. Streams run as late as they may, in a legal order drawn by a seed. If the
 * host touches device memory, it faults. Ranks are processes that share a file. Any call can be
 * made to fail. This header includes no CUDA header.
 *
 * Refused in a capture, as CUDA's manual says:
 *   - allocations, synchronous copies and fills, waits and queries of the host (these spoil the
 *     capture)
 *   - a second capture
 *   - a stream that is not joined
 *   - an event of another graph
 *
 * Refused elsewhere:
 *   - allocations beyond the device's memory
 *   - a copy or fill whose direction contradicts the addresses
 *   - freeing an address that no allocation returned
 *   - the time between events that have no timing or are not recorded yet
 *   - a device that does not exist
 *   - a driver older than the runtime
 *
 * Undefined by the manual, so the test ends:
 *   - a copy between bytes that overlap
 *   - a kernel, product or collective on memory of the host
 *   - streams that wait for each other
 *   - CUDA or NCCL in the child of a process that has used it before the fork
 *   - a host that touches device memory
 *
 * Delayed: all work of streams, also the work of the default stream beside nonblocking streams.
 * Copies from pageable memory return before they arrive. A copy may write a byte twice. cudaFree
 * and cudaFreeHost wait for the device. The first launch of a kernel loads it, which waits for
 * running work. nccl.c lists the calls of NCCL that return before they have ended.
 *
 * Not imitated:
 *   - errors of earlier work that later calls return (except for a lost device)
 *   - limits of graphs, and their memory
 *   - the alignment that kernels' accesses need (the emulator checks it)
 *   - caches and clocks
 *   - several devices in one process
 * cuDNN has no double: test_cudnn uses the real library. */
#ifndef TANDEM_TESTS_CUDA_DOUBLE_H
#define TANDEM_TESTS_CUDA_DOUBLE_H

#include "planner/base/str.h"

/* Starts the double with a script. Most of its words state an effect on the nth call (from 1) of a
 * function. Words have spaces between them. It may also be in the variable TANDEM_DOUBLE:
 *   seed=N            number of the legal order
 *   first=N           the Nth stream that is made (from 1) runs whenever it can, and all others
 *                     only when it cannot. So the others are as late as CUDA allows
 *   devices=N         number of devices (default 4)
 *   memory=BYTES      memory of each device (default 256 MiB)
 *   queue=N           tasks that a stream holds before its caller must wait (default 1024)
 *   branches=serial   a graph's nodes run one at a time, in the order of the capture, each until it
 *                     is done, because CUDA promises no more
 *   branches=drawn    the same in any order that is legal
 *   ctas=2-8:1        NCCL takes only communicators that ask for this min, max, policy (0: not set)
 *   windows=none      NCCL registers windows, but gives none
 *   uuid=same         all devices have the same identity
 *   capability=75     compute capability of all devices
 *   driver=12000      version of the driver
 *   rank=R            the following words are only for this rank (by the launcher's variables)
 *   CALL@N=fail:CODE  returns the code
 *   CALL@N=async:CODE NCCL: succeeds, and the communicator reports the code from then on
 *   CALL@N=hang       NCCL: the operation never ends. An init or split stays in progress, and an
 *                     abort does not return
 *   CALL@N=stays      NCCL: hangs, and an abort does not end it on the device
 *   CALL@N=slow:MS    takes this many milliseconds
 *   kernel@N=fault:CODE  is launched, and when it runs the device is lost: nothing else runs, and
 *                     every call of CUDA returns the code
 *   wrong=OP          every fourth number that kernels of this op make is halved
 *   CALL@N=kill       the process dies of SIGKILL during the call
 *   CALL@N=stop       the process is stopped during the call */
void double_begin(const char *script); /* forgets all calls and objects; NULL: $TANDEM_DOUBLE */
void double_follow(void); /* lets a child go on with its parent's double, for tests of the double */
uint32_t double_calls(const char *call); /* number of calls of this function since double_begin */
/* Returns true if all objects that were made have been released. Otherwise appends one line for
 * each kind of unreleased objects to `out`. */
bool double_is_clean(Str *out);
/* Returns true if the address is in device memory. */
bool double_is_device(const void *at);

#endif
