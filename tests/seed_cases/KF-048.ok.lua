-- expect: ok mesh dp_shard=2 | parallel fsdp2(reshard), compile(model)
return require "dialects.kempnerforge" {
  world = 2,
  model = { dim = 64, n_layers = 2, n_heads = 8, vocab_size = 256, num_experts = 0 },
  train = { batch_size = 1, seq_len = 64 },
  distributed = { ep = 1 },
}
