-- One of the eight GPUs of an HGX H200, for the plans of this folder.
local one = require "clusters.hgx_h200" {}
one.name, one.devices_per_node, one.nics_per_node = "one_h200", 1, 1
-- One GPU has no communicator. The reserved memory is for the context, the kernels and the
-- workspace of cuBLAS.
one.device.reserved_bytes = (512 + 32) * (1 << 20)
return one
