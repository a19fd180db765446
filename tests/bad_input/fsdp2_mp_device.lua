local cluster = require "clusters.local_cpu" {}
cluster.device.peak_flops = { f32 = 60e9, f64 = 30e9 }
return plan {
  model = require "models.llama" "tiny", batch = { global = 8, seq = 64 }, mesh = { dp_shard = 8 },
  cluster = cluster,
  parallel = { fsdp2 { mp = {
    param = "bf16",
    output = "fp16",
  } } },
}
