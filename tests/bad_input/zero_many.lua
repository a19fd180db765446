return plan {
  model = require "models.llama" "tiny", batch = { global = 4, seq = 64 }, mesh = { dp_shard = 2 },
  parallel = { zero {
    strategy = "optim", fsdp_double_buffer = true, keep_fp8_transpose_cache = true, check_for_nan_in_grad = true,
    calculate_per_token_loss = false, bucket_size = 1000, disable_bucketing = true } },
}
