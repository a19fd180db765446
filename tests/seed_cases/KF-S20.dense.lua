-- expect: ok parameters 164160
return require "dialects.kempnerforge" {
  world = 1,
  model = { dim = 64, n_layers = 2, n_heads = 8, vocab_size = 256, num_experts = 0, moe_router = "sigmoid_topk" },
  train = { batch_size = 1, seq_len = 64 },
}
