-- expect: ok mesh dp_shard=8 | parallel fsdp2(reshard), compile(model)
return require "dialects.kempnerforge" {
  world = 8,
  model = { dim = 64, n_layers = 2, n_heads = 8, vocab_size = 256 },
  train = { batch_size = 1, seq_len = 64 },
  distributed = { ep = 1 },
}
