return plan {
  model = require "models.llama" "tiny", batch = { global = 8, seq = 64 }, mesh = { dp_shard = 2 },
  parallel = { fsdp2 { mp = { param = "Half", reduce = "torch.bfloat16", output = "bf61", reduse = "fp32",
    cast_forward_input = true } } },
}
