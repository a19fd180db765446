-- MaxText: one program that XLA compiles and the host starts as a whole; cuDNN's attention. No published run shaped it.
return require "runtimes.eager" { name = "maxtext", fitted = "torchtitan", attention = "cudnn", compiles_loss = true,
  kernel_s = 1e-6, compiled_s = 1e-6, tensor_s = 0, collective_s = 1e-6, unit_s = 0 }
