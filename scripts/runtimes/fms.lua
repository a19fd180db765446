-- fms-fsdp: FSDP1 over HSDP with torch.compile and PyTorch's own attention (FlashAttention-2).

-- kind: source; the framework's modules and kernels, named at the head of the script
return require "runtimes.eager" { name = "fms", fitted = "fsdp1" }
