-- expect: ok moe-layers 0,1
-- expect: no warning[not-applied]
return require "dialects.kempnerforge" {
  world = 1,
  model = { dim = 64, n_layers = 2, n_heads = 8, vocab_size = 256, num_experts = 4, moe_router = "softmax_topk" },
  train = { batch_size = 1, seq_len = 64 },
}
