-- torchtitan of 2024 under tensor parallelism. The loss is DTensor's parallel loss
-- (tensor/parallel/loss.py). In its backward pass, four fp32 tensors exist at once: the log-softmax,
-- its exponential, a scatter of -1, and the sum of the last two.

-- kind: source; the framework's modules and kernels, named at the head of the script
return require "runtimes.eager" { name = "torchtitan2024_tp", fitted = "torchtitan", casts_gradients = true, keeps_gathered = true, expandable = true,
  keeps_outputs = true, keeps_sent = true, keeps_received = true,
  ops = { xent_sumexp_grad = { kernels = 2, passes = 5, scratch = 12, tensors = 3 } } }
