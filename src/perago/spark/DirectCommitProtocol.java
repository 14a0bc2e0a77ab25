package perago.spark;

import java.io.File;
import java.io.FileInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.Serializable;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.LocatedFileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RemoteIterator;
import org.apache.hadoop.mapreduce.JobContext;
import org.apache.hadoop.mapreduce.OutputCommitter;
import org.apache.hadoop.mapreduce.TaskAttemptContext;
import org.apache.spark.SparkConf;
import org.apache.spark.TaskContext;
import org.apache.spark.internal.io.FileCommitProtocol;
import org.apache.spark.internal.io.FileNameSpec;
import org.apache.spark.mapred.SparkHadoopMapRedUtil;
import org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol;
import org.apache.spark.util.Utils;

/**
 * Writes a table's files to a staging branch under their final names, so that no file is copied or renamed there.
 *
 * "Task" and "job" mean Spark's here.  A task attempt writes its files to its executor's own disk.  The driver authorizes
 * one attempt of a task at a time to commit, and that attempt then uploads each file with one request.  A file's name
 * contains the ids of the job and of the task attempt, so no two attempts write to the same object.  When the job commits,
 * it knows the files of the attempts that Spark has accepted, and deletes all other files of the job: those of an executor
 * that died while it was uploading.
 *
 * A file may arrive even later, from an executor that Spark has given up on but that is still alive.  Perago finds it: it
 * asks for the committed files of a branch before it publishes the branch.
 *
 * Tables outside the branches that Perago has opened are committed as Spark itself does it.
 *
 * Spark's own compiler compiles this file when a session starts (direct_commits.py).  It knows neither generics nor
 * lambdas.
 */
public class DirectCommitProtocol extends SQLHadoopMapReduceCommitProtocol implements Serializable {
    private static final long serialVersionUID = 1L;
    private static final int BUFFER = 1 << 16;

    /** The committed files of each job, by the URI of the branch. Used on the driver only. */
    private static final Map BRANCHES = new ConcurrentHashMap();

    private final String job;
    private final String table;
    private final boolean replacesPartitions;
    private final boolean direct;

    /** The files of the running task attempt: pairs of a local path and the path in the table. */
    private transient List files;
    private transient File folder;
    private transient Upload upload;

    public DirectCommitProtocol(String job, String table, boolean replacesPartitions) {
        super(job, table, replacesPartitions);
        this.job = job;
        this.table = table;
        this.replacesPartitions = replacesPartitions;
        this.direct = branchOf(table) != null;
    }

    /** Begin to write tables below this URI directly. */
    public static void open(String branch) {
        BRANCHES.putIfAbsent(branch, new ConcurrentHashMap());
    }

    /** Return the jobs that have written below this URI, each with the files that it committed: NUL after each, and after each job. */
    public static String committed(String branch) {
        StringBuilder text = new StringBuilder();
        Map jobs = (Map) BRANCHES.get(branch);
        if (jobs == null) {
            return "";
        }
        for (Iterator each = jobs.entrySet().iterator(); each.hasNext();) {
            Map.Entry entry = (Map.Entry) each.next();
            text.append(entry.getKey()).append('\0');
            for (Iterator files = ((Set) entry.getValue()).iterator(); files.hasNext();) {
                text.append(files.next()).append('\0');
            }
            text.append('\0');
        }
        return text.toString();
    }

    /** Forget what was written below this URI. Tables there are committed as by Spark itself from here on. */
    public static void close(String branch) {
        BRANCHES.remove(branch);
    }

    private static String branchOf(String path) {
        for (Iterator each = BRANCHES.keySet().iterator(); each.hasNext();) {
            String branch = (String) each.next();
            if (path.startsWith(branch + "/")) {
                return branch;
            }
        }
        return null;
    }

    public void setupJob(JobContext context) {
        if (!direct) {
            super.setupJob(context);
            return;
        }
        register(new HashSet());
    }

    public void setupTask(TaskAttemptContext context) {
        if (!direct) {
            super.setupTask(context);
            return;
        }
        files = new ArrayList();
        folder = null;
        upload = new Upload();
    }

    public String newTaskTempFile(TaskAttemptContext context, scala.Option partition, FileNameSpec spec) {
        if (!direct) {
            return super.newTaskTempFile(context, partition, spec);
        }
        if (folder == null) {
            folder = Utils.createTempDir(Utils.getLocalDir(new SparkConf()), "perago-write");
        }
        String name = String.format("%spart-%05d-%s-%d%s", new Object[] {
            spec.prefix(),
            Integer.valueOf(context.getTaskAttemptID().getTaskID().getId()),
            job,
            Long.valueOf(TaskContext.get().taskAttemptId()),
            spec.suffix(),
        });
        Path target = new Path(table);
        if (partition.isDefined()) {
            target = new Path(target, (String) partition.get());
        }
        // Files of one name may belong to two partitions.
        Path local = new Path(new Path(folder.toURI()), files.size() + "-" + name);
        files.add(new String[] {local.toString(), new Path(target, name).toString()});
        return local.toString();
    }

    public String newTaskTempFileAbsPath(TaskAttemptContext context, String location, FileNameSpec spec) {
        if (!direct) {
            return super.newTaskTempFileAbsPath(context, location, spec);
        }
        throw new UnsupportedOperationException("a partition of a table on a staging branch cannot be elsewhere: " + location);
    }

    public FileCommitProtocol.TaskCommitMessage commitTask(TaskAttemptContext context) {
        if (!direct) {
            return super.commitTask(context);
        }
        // Asks the driver first. If another attempt of the task is authorized, this raises Spark's error for that.
        SparkHadoopMapRedUtil.commitTask(
            upload, context, context.getJobID().getId(), context.getTaskAttemptID().getTaskID().getId());
        ArrayList committed = new ArrayList(upload.begun);
        deleteFolder();
        return new FileCommitProtocol.TaskCommitMessage(committed);
    }

    public void abortTask(TaskAttemptContext context) {
        if (!direct) {
            super.abortTask(context);
            return;
        }
        for (Iterator each = upload.begun.iterator(); each.hasNext();) {
            Path file = new Path((String) each.next());
            try {
                file.getFileSystem(context.getConfiguration()).delete(file, false);
            } catch (IOException error) {
                // The commit of the job deletes it.
            }
        }
        deleteFolder();
    }

    private void deleteFolder() {
        if (folder != null) {
            Utils.deleteRecursively(folder);
            folder = null;
        }
    }

    public void commitJob(JobContext context, scala.collection.immutable.Seq messages) {
        if (!direct) {
            super.commitJob(context, messages);
            return;
        }
        Set committed = new HashSet();
        for (scala.collection.Iterator each = messages.iterator(); each.hasNext();) {
            committed.addAll((List) ((FileCommitProtocol.TaskCommitMessage) each.next()).obj());
        }
        try {
            FileSystem system = new Path(table).getFileSystem(context.getConfiguration());
            if (replacesPartitions) {
                deletePartitions(system, committed);
            }
            deleteOthers(system, committed);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        register(committed);
    }

    public void abortJob(JobContext context) {
        if (!direct) {
            super.abortJob(context);
            return;
        }
        try {
            deleteOthers(new Path(table).getFileSystem(context.getConfiguration()), new HashSet());
        } catch (IOException error) {
            // Perago deletes them before it publishes.
        }
    }

    /** Delete everything else in the partitions of these files. */
    private void deletePartitions(FileSystem system, Set committed) throws IOException {
        Set partitions = new HashSet();
        for (Iterator each = committed.iterator(); each.hasNext();) {
            partitions.add(new Path((String) each.next()).getParent());
        }
        partitions.remove(new Path(table));
        for (Iterator each = partitions.iterator(); each.hasNext();) {
            RemoteIterator found = system.listFiles((Path) each.next(), true);
            while (found.hasNext()) {
                Path file = ((LocatedFileStatus) found.next()).getPath();
                if (!committed.contains(file.toString())) {
                    system.delete(file, false);
                }
            }
        }
    }

    /** Delete the files of this job in the table, except these. */
    private void deleteOthers(FileSystem system, Set committed) throws IOException {
        if (!system.exists(new Path(table))) {
            return;
        }
        RemoteIterator found = system.listFiles(new Path(table), true);
        while (found.hasNext()) {
            Path file = ((LocatedFileStatus) found.next()).getPath();
            if (file.getName().indexOf("-" + job + "-") >= 0 && !committed.contains(file.toString())) {
                system.delete(file, false);
            }
        }
    }

    private void register(Set committed) {
        String branch = branchOf(table);
        Map jobs = branch == null ? null : (Map) BRANCHES.get(branch);
        if (jobs != null) {
            jobs.put(job, committed);
        }
    }

    /** Uploads the files of one task attempt, once it is authorized to commit. */
    private class Upload extends OutputCommitter {
        /** The paths in the table to which an upload has begun. */
        private final List begun = new ArrayList();

        public void setupJob(JobContext context) {
        }

        public void setupTask(TaskAttemptContext context) {
        }

        public boolean needsTaskCommit(TaskAttemptContext context) {
            return !files.isEmpty();
        }

        public void commitTask(TaskAttemptContext context) throws IOException {
            for (Iterator each = files.iterator(); each.hasNext();) {
                String[] pair = (String[]) each.next();
                begun.add(pair[1]);
                Path target = new Path(pair[1]);
                FileSystem system = target.getFileSystem(context.getConfiguration());
                copy(new File(new Path(pair[0]).toUri().getPath()), system.create(target, true));
            }
        }

        public void abortTask(TaskAttemptContext context) {
        }

        private void copy(File local, FSDataOutputStream output) throws IOException {
            byte[] buffer = new byte[BUFFER];
            boolean complete = false;
            InputStream input = new FileInputStream(local);
            try {
                for (int length = input.read(buffer); length >= 0; length = input.read(buffer)) {
                    output.write(buffer, 0, length);
                }
                complete = true;
            } finally {
                input.close();
                if (complete) {
                    output.close();
                } else {
                    // Closing it would upload the part that has been copied.
                    output.abort();
                }
            }
        }
    }
}
