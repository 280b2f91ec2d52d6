// Reads from one server and from a cluster with go-redis, and compares every value.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

var ctx = context.Background()

func fail(format string, values ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", values...)
	os.Exit(1)
}

func check(what string, got, expected any) {
	if got != expected {
		fail("%s: expected %v, got %v", what, expected, got)
	}
}

func key(i int) string { return fmt.Sprintf("key-%d", i) }

func value(i int) string { return fmt.Sprintf("value %d of version 1", i) }

func reads(entries int) {
	address := "127.0.0.1:" + os.Getenv("PORT")
	client := redis.NewClient(&redis.Options{Addr: address})
	got, err := client.Get(ctx, key(7)).Result()
	check("get", err, nil)
	check("get", got, value(7))
	check("absent", client.Get(ctx, "nope").Err(), redis.Nil)
	many, err := client.MGet(ctx, key(1), "nope", key(2)).Result()
	check("mget", err, nil)
	check("mget", fmt.Sprint(many), fmt.Sprint([]any{value(1), nil, value(2)}))
	commands, err := client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for i := range 500 {
			pipe.Get(ctx, key(i))
		}
		return nil
	})
	check("pipeline", err, nil)
	for i, command := range commands {
		check("pipeline", command.(*redis.StringCmd).Val(), value(i))
	}
	check("exists", client.Exists(ctx, key(1), "nope").Val(), int64(1))
	check("dbsize", client.DBSize(ctx).Val(), int64(entries))
	seen := map[string]bool{}
	for scan := client.Scan(ctx, 0, "", 300).Iterator(); scan.Next(ctx); {
		seen[scan.Val()] = true
	}
	check("scan", len(seen), entries)
	if err := client.Set(ctx, "a", "b", 0).Err(); err == nil || !strings.HasPrefix(err.Error(), "NOPERM") {
		fail("a write: expected NOPERM, got %v", err)
	}
	fixed := redis.NewClient(&redis.Options{Addr: address, Username: "people@1", Password: "x"})
	check("a version", fixed.Get(ctx, key(7)).Val(), value(7))
}

func cluster(entries int) {
	var addresses []string
	for _, port := range strings.Split(os.Getenv("CLUSTER_PORTS"), ",") {
		addresses = append(addresses, "127.0.0.1:"+port)
	}
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addresses, ReadOnly: true})
	for i := range entries {
		got, err := client.Get(ctx, key(i)).Result()
		check("cluster get", err, nil)
		check("cluster get", got, value(i))
	}
	fmt.Println("ready")
	count, failed, gap, last := 0, 0, time.Duration(0), time.Now()
	for start := time.Now(); time.Since(start) < 5*time.Second; count++ {
		got, err := client.Get(ctx, key(count%entries)).Result()
		if err != nil {
			failed++
		} else {
			check("get during a failure", got, value(count%entries))
			gap, last = max(gap, time.Since(last)), time.Now()
		}
	}
	gap = max(gap, time.Since(last))
	result := map[string]any{"reads": count, "failed": failed, "gap_ms": gap.Milliseconds()}
	json.NewEncoder(os.Stdout).Encode(result)
}

func main() {
	entries, err := strconv.Atoi(os.Getenv("ENTRIES"))
	check("ENTRIES", err, nil)
	reads(entries)
	cluster(entries)
}
