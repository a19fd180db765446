-- MaxText: XLA compiles one program, and the host starts it as a whole; attention is cuDNN's. No
-- published run was used to fit it.

-- kind: assumed; XLA starts a whole program
return require "runtimes.eager" { name = "maxtext", fitted = "torchtitan", attention = "cudnn", compiles_loss = true,
  kernel_s = 1e-6, compiled_s = 1e-6, tensor_s = 0, collective_s = 1e-6, unit_s = 0 }
