-- DeepSpeed ZeRO with Hugging Face's models: parameters of each module are gathered by hooks. No row of it
-- may be fitted: FSDP1's host times are taken.
return require "runtimes.eager" { name = "deepspeed", fitted = "fsdp1" }
