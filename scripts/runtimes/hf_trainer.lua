-- Hugging Face's Trainer with its own eager models and FlashAttention-2: norms and rope in many kernels, logits taken to fp32,
-- shifted by a copy (modeling_llama.py before 4.46). AdamW by lists of tensors: the square roots of all second moments are
-- there at once (torch/optim/adamw.py, _multi_tensor_adamw). FSDP1's host times; it reports what is allocated.
return require "runtimes.eager" { name = "hf_trainer", fitted = "fsdp1", reports = "allocated", casts_gradients = true, holds_arguments = true,
  update_bytes = 2,
  ops = { xent_max = { kernels = 3, passes = 9, saved = 4, scratch = 4 } } }
