-- Hugging Face's Trainer with its own eager models and FlashAttention-2. Norms and rope take many
-- kernels. Logits are cast to fp32, and copied because they are shifted by one token. In the
-- forward pass, 16-bit logits, cast logits, copy and log-softmax exist at once: 14 bytes for each
-- logit (loss/loss_utils.py since 4.46). In the backward pass, the log-softmax and two gradients
-- exist at once: 12 bytes. AdamW works on lists of tensors, so the square roots of all second
-- moments exist at once (torch/optim/adamw.py, _multi_tensor_adamw). Host times are FSDP1's. Logs
-- report allocated memory.

-- kind: source; the framework's modules and kernels, named at the head of the script
return require "runtimes.eager" { name = "hf_trainer", fitted = "fsdp1", reports = "allocated", casts_gradients = true, holds_arguments = true,
  update_bytes = 2,
  ops = { xent_max = { kernels = 3, passes = 9, saved = 4, scratch = 8 }, xent_sumexp_grad = { kernels = 2, passes = 5, scratch = 4 } } }
