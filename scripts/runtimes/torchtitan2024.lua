-- torchtitan of 2024: what compiles the blocks leaves the loss eager; PyTorch's stages of that time keep all that they
-- return. Every rank logs its memory, and the page of that December took the most of any.
return require "runtimes.eager" { name = "torchtitan2024", fitted = "torchtitan", casts_gradients = true, expandable = true, keeps_outputs = true,
  keeps_sent = true, keeps_received = true }
