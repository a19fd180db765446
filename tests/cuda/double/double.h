/* A test double of the CUDA runtime and of NCCL: the calls that the backend makes, with exactly the
 * guarantees of CUDA. Streams run as late as they may, in a legal order that a seed draws. Device
 * memory faults when the host touches it. Ranks are processes that share a file. Any call can be
 * made to fail. It includes no CUDA header.
 *
 * Refused in a capture, as CUDA's manual says: allocations, synchronous copies and fills, waits and
 * queries of the host (they spoil the capture); a second capture; a stream that is not joined; an
 * event of another graph.
 *
 * Refused elsewhere: allocations beyond the device's memory; a copy or fill whose direction the
 * addresses contradict; freeing an address that no allocation returned; the time between events
 * without timing or before they are recorded; a device that does not exist; a driver older than the
 * runtime.
 *
 * Undefined by the manual, so the test ends: a copy between bytes that overlap; a kernel, product
 * or collective on memory of the host; streams that wait for each other; a host that touches device
 * memory.
 *
 * Delayed: all work of streams; the default stream's work beside nonblocking streams; copies from
 * pageable memory, which return before they arrive. A copy may write a byte twice. cudaFree and
 * cudaFreeHost wait for the device. The first launch of a kernel loads it, which waits for running
 * work. nccl.c says which calls of NCCL are late.
 *
 * Not imitated: errors of earlier work that later calls return (except for a lost device); limits
 * of graphs, and their memory; the alignment that kernels' accesses need (the emulator checks it);
 * caches and clocks; several devices in one process. cuDNN has no double: test_cudnn asks the
 * library itself. */
#ifndef TANDEM_TESTS_CUDA_DOUBLE_H
#define TANDEM_TESTS_CUDA_DOUBLE_H

#include "planner/base/str.h"

/* The effects of a script on the nth call (from 1) of a function. A script is text of words with
 * spaces between them, also in the variable TANDEM_DOUBLE:
 *   seed=N            which legal order
 *   first=N           the Nth stream that is made (from 1) runs whenever it can, and all others
 *                     only when it cannot: they are as late against it as CUDA allows
 *   devices=N         how many there are (default 4); memory=BYTES of each (default 256 MiB)
 *   queue=N           what a stream holds before its caller must wait (default 1024)
 *   branches=serial   a graph's nodes run one at a time, as captured, each until it is done:
 *                     CUDA does not promise more; branches=drawn: in any order that is legal
 *   ctas=2-8:1        NCCL takes only communicators that ask for this min, max, policy (0: unsaid)
 *   windows=none      NCCL registers windows, but gives none
 *   uuid=same         all devices are the same one
 *   capability=75     of all devices; driver=12000
 *   rank=R            what follows is for this rank alone (by the launcher's variables)
 *   CALL@N=fail:CODE  returns the code
 *   CALL@N=async:CODE NCCL: succeeds, and the communicator reports the code from then on
 *   CALL@N=hang       NCCL: the operation never ends; an init or split stays in progress; an abort
 *                     does not return
 *   CALL@N=stays      NCCL: hangs, and an abort does not end it on the device
 *   CALL@N=slow:MS    takes so long
 *   kernel@N=fault:CODE  is launched, and when it runs the device is lost: nothing else runs, and
 *                     every call of CUDA returns the code
 *   wrong=OP          every fourth number that kernels of this op make is halved
 *   CALL@N=kill       the process dies of SIGKILL in it; CALL@N=stop: it is stopped */
void double_begin(const char *script);   /* forgets all calls and objects; NULL: $TANDEM_DOUBLE */
uint32_t double_calls(const char *call); /* number of its calls since then */
/* Lists objects that were made and not released, one line for each kind; false if there are any. */
bool double_is_clean(Str *out);
/* True if the address is in device memory. */
bool double_is_device(const void *at);

#endif
