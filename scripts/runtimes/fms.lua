-- fms-fsdp: FSDP1 over HSDP with torch.compile and PyTorch's own attention (FlashAttention-2).
return require "runtimes.eager" { name = "fms", fitted = "fsdp1" }
