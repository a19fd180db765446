-- Hugging Face's Trainer with its own eager models and FlashAttention-2: norms and rope take many
-- kernels, logits are cast to fp32 and shifted by a copy (modeling_llama.py before 4.46). AdamW
-- works on lists of tensors, so the square roots of all second moments exist at once
-- (torch/optim/adamw.py, _multi_tensor_adamw). It has FSDP1's host times, and reports allocated
-- memory.

-- kind: source; the framework's modules and kernels, as the comment above names them
return require "runtimes.eager" { name = "hf_trainer", fitted = "fsdp1", reports = "allocated", casts_gradients = true, holds_arguments = true,
  update_bytes = 2,
  ops = { xent_max = { kernels = 3, passes = 9, saved = 4, scratch = 4 } } }
