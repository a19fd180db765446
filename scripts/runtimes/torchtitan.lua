-- torchtitan since 2025, eager or with blocks and the loss compiled (components/loss.py). It uses
-- FSDP2 and DTensor. AdamW works on lists of tensors. The launcher requests expandable segments.
-- Host times are those of the 2024 profile. PyTorch's scaled_dot_product_attention calls cuDNN,
-- because torchtitan lists it first: on Blackwell since May 2025 (models/attention.py, #1196), on
-- all GPUs since October (#1776).

-- kind: source; the framework's modules and kernels, named at the head of the script
return require "runtimes.eager" { name = "torchtitan", casts_gradients = true, keeps_gathered = true, expandable = true, compiles_loss = true, keeps_outputs = true,
  keeps_received = true, reports_rank = "last", attention = { "flash2", Hopper = "cudnn", Blackwell = "cudnn" } }
