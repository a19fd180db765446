-- torchtitan of 2024: the loss stays eager if blocks are compiled. PyTorch's pipeline stages of
-- that time keep all outputs. Every rank logs its memory; torchtitan's page of December 2024
-- reported the largest number.

-- kind: source; the framework's modules and kernels, named at the head of the script
return require "runtimes.eager" { name = "torchtitan2024", fitted = "torchtitan", casts_gradients = true, keeps_gathered = true, expandable = true, keeps_outputs = true,
  keeps_sent = true, keeps_received = true }
