-- expect: ok mesh dp_shard=4 ep=2 tp=4 | ranks 32 | experts 4
-- expect: ok parallel meta, tp by 4 patterns, ep, fsdp2(reshard, not over ep), materialize, compile(model)
return require "dialects.kempnerforge" {
  world = 32,
  model = { dim = 64, n_layers = 2, n_heads = 8, n_kv_heads = 4, vocab_size = 256, num_experts = 8 },
  train = { batch_size = 1, seq_len = 64 },
  distributed = { dp_shard = 4, ep = 2, tp = 4 },
}
