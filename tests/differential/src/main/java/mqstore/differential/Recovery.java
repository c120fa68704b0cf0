package mqstore.differential;

import com.alibaba.fastjson2.JSONObject;
import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;
import java.util.List;
import java.util.function.Consumer;
import java.util.stream.Stream;
import org.apache.rocketmq.store.StoreCheckpoint;
import org.apache.rocketmq.store.queue.ConsumeQueueInterface;

/** What RocketMQ makes of a store: load, start, clean stop, and the digest of each file it leaves. */
final class Recovery {
    private static final List<String> CHECKPOINT = List.of("physicMsgTimestamp", "logicsMsgTimestamp",
        "indexMsgTimestamp", "masterFlushedOffset", "confirmPhyOffset");

    /** Longer files are mostly holes; reading a gigabyte of zeros tells nothing. */
    private static final long DIGEST_LIMIT = 16 << 20;

    private Recovery() {
    }

    static void run(String root, JSONObject parameters, Consumer<JSONObject> rows) throws Exception {
        OpenStore opened = new OpenStore(root, parameters);
        try {
            JSONObject row = Dump.row("recover");
            row.put("loaded", true);
            row.put("lastExitOK", opened.lastExitOk);
            row.put("loadMs", opened.loadMs);
            row.put("minPhyOffset", opened.store.getMinPhyOffset());
            row.put("maxPhyOffset", opened.store.getMaxPhyOffset());
            row.put("confirmOffset", opened.store.getConfirmOffset());
            row.put("checkpoint", checkpoint(opened.store.getStoreCheckpoint()));
            rows.accept(row);
            queues(opened, "afterLoad", rows);
            if (opened.isReplicated()) {
                // A start would listen for slaves.
                return;
            }
            opened.start();
            JSONObject dispatch = Dump.row("dispatch");
            dispatch.put("caughtUp", opened.awaitDispatch());
            dispatch.put("maxPhyOffset", opened.store.getMaxPhyOffset());
            rows.accept(dispatch);
            queues(opened, "afterStart", rows);
        } finally {
            opened.close();
        }
        JSONObject stop = Dump.row("shutdown");
        stop.put("abortRemains", new File(root, "abort").exists());
        stop.put("checkpoint", checkpoint(Path.of(root, "checkpoint")));
        rows.accept(stop);
        files(Path.of(root), rows);
    }

    private static void queues(OpenStore opened, String when, Consumer<JSONObject> rows) {
        for (ConsumeQueueInterface queue : opened.queues()) {
            JSONObject row = Dump.queueRow(queue);
            row.put("when", when);
            rows.accept(row);
        }
    }

    private static JSONObject checkpoint(StoreCheckpoint checkpoint) {
        JSONObject row = new JSONObject();
        row.put("physicMsgTimestamp", checkpoint.getPhysicMsgTimestamp());
        row.put("logicsMsgTimestamp", checkpoint.getLogicsMsgTimestamp());
        row.put("indexMsgTimestamp", checkpoint.getIndexMsgTimestamp());
        row.put("masterFlushedOffset", checkpoint.getMasterFlushedOffset());
        row.put("confirmPhyOffset", checkpoint.getConfirmPhyOffset());
        return row;
    }

    private static JSONObject checkpoint(Path file) throws IOException {
        byte[] bytes = Files.readAllBytes(file);
        ByteBuffer fields = ByteBuffer.wrap(bytes);
        JSONObject row = new JSONObject();
        row.put("length", bytes.length);
        for (String name : CHECKPOINT) {
            row.put(name, fields.getLong());
        }
        return row;
    }

    private static void files(Path root, Consumer<JSONObject> rows) throws IOException, NoSuchAlgorithmException {
        List<Path> found;
        try (Stream<Path> walk = Files.walk(root)) {
            found = walk.filter(Files::isRegularFile).sorted().toList();
        }
        for (Path file : found) {
            JSONObject row = Dump.row("file");
            row.put("path", root.relativize(file).toString());
            row.put("length", Files.size(file));
            row.put("sha256", Files.size(file) > DIGEST_LIMIT ? null : digest(file));
            rows.accept(row);
        }
    }

    private static String digest(Path file) throws IOException, NoSuchAlgorithmException {
        MessageDigest digest = MessageDigest.getInstance("SHA-256");
        byte[] buffer = new byte[1 << 20];
        try (InputStream in = Files.newInputStream(file)) {
            for (int n = in.read(buffer); n >= 0; n = in.read(buffer)) {
                digest.update(buffer, 0, n);
            }
        }
        return HexFormat.of().formatHex(digest.digest());
    }
}
